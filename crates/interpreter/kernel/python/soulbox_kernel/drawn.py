"""What somebody drew on a pair of axes."""


def children_of(ax):
    """Without texts, legends, and the frame that every plot has."""
    return [*ax.lines, *ax.patches, *ax.collections, *ax.images, *ax.artists, *ax.tables]


def is_grid_line(line):
    """Two points, one right above or beside the other."""
    x, y = line.get_xdata(), line.get_ydata()
    if len(x) != 2:
        return False
    return bool(x[0] == x[1] or y[0] == y[1])
