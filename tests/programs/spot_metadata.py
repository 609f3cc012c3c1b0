"""Metadata server of a cloud that announces that a machine will be taken away."""

import http.server
import pathlib
import sys

cloud, notice = sys.argv[1], pathlib.Path(sys.argv[2])


class Answer(http.server.BaseHTTPRequestHandler):
    def send(self, status, text=""):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        asked = cloud == "aws" and self.path == "/latest/api/token"
        timed = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.send(200, "a token") if asked and timed else self.send(404)

    def do_GET(self):
        if cloud == "aws" and self.headers["X-aws-ec2-metadata-token"] == "a token":
            announced = self.path == "/latest/meta-data/spot/instance-action" and notice.exists()
            self.send(200, "{}") if announced else self.send(404)
        elif cloud == "google" and self.headers["Metadata-Flavor"] == "Google":
            self.send(200, str(notice.exists()).upper())
        else:
            self.send(401)


http.server.ThreadingHTTPServer(("169.254.169.254", 80), Answer).serve_forever()
