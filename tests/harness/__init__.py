"""What the black-box suites stand on: server processes, a strict raw HTTP/1.1 client, and waiting for conditions."""
