"""Boxes with whiskers: which of the lines on the axes belong to which box, and what they say."""

from .ticks import rounded


class Box:
    """A box standing upright; one that lies is turned before it comes here."""

    def __init__(self, label, left, bottom, width, height):
        self.label = label
        self.left, self.right = rounded(left), rounded(left + width)
        self.bottom, self.top = rounded(bottom), rounded(bottom + height)
        self.low = self.high = self.median = None
        self.outliers = []

    def take(self, xs, ys):
        """Takes what a line says about this box, if it is about it."""
        inside = all(self.left <= x <= self.right for x in xs)
        if not inside:
            return
        if len(xs) == 1:
            self.outliers.append(ys[0])
        elif len(xs) != 2:
            return
        elif xs[0] == xs[1]:
            # A whisker may have no length, when the farthest value is the quartile itself.
            if max(ys) == self.bottom:
                self.low = min(ys)
            if min(ys) == self.top:
                self.high = max(ys)
        elif ys[0] == ys[1] and self.bottom <= ys[0] <= self.top and self.spans(xs):
            self.median = ys[0]

    def spans(self, xs):
        """A median goes from edge to edge; the caps of whiskers are narrower."""
        return {min(xs), max(xs)} == {self.left, self.right}

    def element(self):
        """A piece that is missing means that this is no such plot after all."""
        pieces = (self.low, self.median, self.high)
        if any(piece is None for piece in pieces):
            raise ValueError("a box without whiskers or median")
        return {
            "label": self.label,
            "min": self.low,
            "first_quartile": self.bottom,
            "median": self.median,
            "third_quartile": self.top,
            "max": self.high,
            "outliers": self.outliers,
        }


def boxes_of(ax):
    outlines = [patch.get_path().get_extents().bounds for patch in ax.patches]
    lines = [
        ([rounded(x) for x in line.get_xdata()], [rounded(y) for y in line.get_ydata()], line)
        for line in ax.lines
    ]
    lying = any(cuts_upright(outline, xs, ys) for outline in outlines for xs, ys, _ in lines)
    tick_labels = ax.get_yticklabels() if lying else ax.get_xticklabels()
    if lying:
        outlines = [(bottom, left, height, width) for left, bottom, width, height in outlines]
        lines = [(ys, xs, line) for xs, ys, line in lines]
    boxes = [
        Box(label.get_text(), *outline) for label, outline in zip(tick_labels, outlines)
    ]
    for xs, ys, line in lines:
        # The outliers of one box are one line without strokes.
        pieces = [([x], [y]) for x, y in zip(xs, ys)] if is_dotted(line) else [(xs, ys)]
        for box in boxes:
            for piece in pieces:
                box.take(*piece)
    return [box.element() for box in boxes], lying


def cuts_upright(outline, xs, ys):
    """Whether a line goes upright through the whole of a box, as the median of a lying one does."""
    left, bottom, width, height = outline
    return (
        len(xs) == 2
        and xs[0] == xs[1]
        and left <= xs[0] <= left + width
        and {min(ys), max(ys)} == {rounded(bottom), rounded(bottom + height)}
    )


def is_dotted(line):
    return line.get_linestyle() in ("None", "", " ")
