"""Reads pip's --report from stdin and says how much it would download."""

import json
import sys
import urllib.request


def size(url):
    """Bytes of a file, as the server tells them; 0 where it does not."""
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.headers.get("Content-Length") or 0)
    except (OSError, ValueError):
        return 0


def main():
    wheels = [item["download_info"]["url"] for item in json.load(sys.stdin)["install"]]
    sizes = [size(url) for url in wheels]
    total = sum(sizes) / 1e6
    unknown = sizes.count(0)
    more = f", and {unknown} of unknown size" if unknown else ""
    print(f"set-up: {len(wheels)} packages of the Python index to fetch, {total:.0f} MB{more}")


if __name__ == "__main__":
    main()
