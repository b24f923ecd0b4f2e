# SPDX-License-Identifier: Apache-2.0
"""A real S3 server of a test, Ceph's gateway, which ../testing/radosgw.sh
starts and ends, and what looks into its bucket from Python."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import s3fs
from harness import HANG_SECONDS, HERE, expect

SCRIPT = HERE.parent / "testing" / "radosgw.sh"
BUCKET = "tessera"
# Settings of this machine that would lead elsewhere.
FOREIGN = (
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_SESSION_TOKEN",
    "HTTP_PROXY",
    "http_proxy",
)


class ObjectServer:
    """Starts it, and makes it the one that this process and its children use.
    Its bucket begins empty."""

    def __init__(self):
        # Not in the test's scratch folder: paths of sockets must be short.
        parent = pathlib.Path(tempfile.mkdtemp(prefix="rgw"))
        self.folder = parent / "s"
        self.process = subprocess.Popen(
            [SCRIPT, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.endpoint = self.process.stdout.readline().strip()
        expect(self.endpoint, "radosgw.sh did not start; see above for why")
        for name in FOREIGN:
            os.environ.pop(name, None)
        os.environ.update(
            AWS_ENDPOINT_URL=self.endpoint,
            AWS_ACCESS_KEY_ID=BUCKET,
            AWS_SECRET_ACCESS_KEY="tesserasecret",
            # Newer checksums of botocore's are unknown to this gateway.
            AWS_REQUEST_CHECKSUM_CALCULATION="when_required",
        )
        self.files = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False
        )

    def url(self, key):
        return f"s3://{BUCKET}/{key}"

    def uploads(self, url):
        """The files below it that have been begun and are not finished."""
        prefix = url.removeprefix(self.url("")) + "/"
        answer = self.files.call_s3(
            "list_multipart_uploads", Bucket=BUCKET, Prefix=prefix
        )
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def restart_gateway(self):
        """Kills it, with no time to finish anything, and starts it again."""
        killed = self._gateway()
        os.kill(killed, signal.SIGKILL)
        (self.folder / "restart").touch()
        deadline = time.monotonic() + HANG_SECONDS
        while self._gateway() == killed or not self._answers():
            expect(time.monotonic() < deadline, "no gateway after a restart")
            time.sleep(0.1)

    def _gateway(self):
        return int((self.folder / "gateway.pid").read_text() or 0)

    def _answers(self):
        try:
            urllib.request.urlopen(self.endpoint, timeout=HANG_SECONDS).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=HANG_SECONDS)
        self.folder.parent.rmdir()
