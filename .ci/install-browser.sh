#!/bin/sh
# Chromium for the browser tests, from the distribution; without it they are skipped.
set -eu
if command -v chromium >/dev/null; then exit 0; fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
