#!/bin/sh
# Runs on every spot machine: when the cloud announces that it will take the machine away, save its trials.
# AWS gives two minutes' notice, Google Cloud thirty seconds.
metadata=http://169.254.169.254
while sleep 5; do
  token=$(curl -sf -m 2 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" $metadata/latest/api/token)
  if curl -sf -m 2 -H "X-aws-ec2-metadata-token: $token" $metadata/latest/meta-data/spot/instance-action >/dev/null ||
    [ "$(curl -sf -m 2 -H Metadata-Flavor:Google $metadata/computeMetadata/v1/instance/preempted)" = TRUE ]; then
    exec python -m orchestrator.sweep cluster leave --seconds 25
  fi
done
