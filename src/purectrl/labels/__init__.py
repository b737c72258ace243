"""`purectrl label`: a local page on which people label the images that a run waits for.

`queue` holds what is asked and what was answered, `server` serves it to this machine only, and the page is `page.html` with
`page.css` and `page.js`, without network access.
"""

from purectrl.labels.queue import LabelQueue
from purectrl.labels.server import LabelServer, serve

__all__ = ["LabelQueue", "LabelServer", "serve"]
