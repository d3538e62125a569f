"""Pillow: an image that is saved to a file, or shown, is displayed as well."""

import functools
import sys

from .formatters import _WhenLoaded


def watch_pillow():
    if "PIL.Image" in sys.modules:
        display_what_is_saved()
    else:
        sys.meta_path.insert(0, _WhenLoaded("PIL.Image", display_what_is_saved))


def display_what_is_saved():
    try:
        from PIL import Image, ImageShow
    except ImportError:
        return
    original = Image.Image.save

    @functools.wraps(original)
    def save(image, target, *args, **kwargs):
        result = original(image, target, *args, **kwargs)
        if isinstance(target, str):
            from IPython.display import display

            display(image)
        return result

    if getattr(original, "__wrapped__", None) is None:
        Image.Image.save = save

    class Viewer(ImageShow.Viewer):
        """There is no screen: saving to a temporary file is what shows the image."""

        format = "PNG"

        def show_file(self, path, **options):
            return 1

    ImageShow._viewers[:] = [Viewer()]
