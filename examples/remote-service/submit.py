"""Submit a sweep to a service on another machine, follow it, and fetch its report.

SWEEP_URL is the address of the service, and SWEEP_TOKEN the token that `sweep user add` has printed.
"""

from pathlib import Path

from orchestrator import Sweep
from orchestrator.client.following import follow


def main():
    """Submit, follow and fetch."""
    service = Sweep.connect()
    sweep = service.submit(Path(__file__).with_name("copy.yaml"), key="remote-example")
    follow(service, sweep.id, print, start=0)
    Path("report.html").write_bytes(service.report(sweep.id))
    print(f"The sweep is {service.status(sweep.id).state}. Its report is in report.html.")


if __name__ == "__main__":
    main()
