"""The registry as a web page and a JSON API: ``artifacts serve``. Read-only but for promotion with a token."""
