#pragma once
// Line charts as values, which svg_plot.hpp and gnuplot.hpp draw.

#include <cstddef>
#include <string>
#include <vector>

namespace calm::apps {

struct plot_point {
    double x, y;
    double error = 0;  // standard error of y
};

// A point that is not finite, beyond 1e150, or below 1e-150 on a logarithmic axis is left out, and a line connects its
// neighbours.
struct plot_curve {
    std::string name;                // in the legend
    std::vector<plot_point> points;  // by ascending x
    std::size_t style = 0;           // colour and shape of the dots
    bool line = true;
    bool dots = false;
    bool dashed = false;
    bool band = false;  // draw the errors as a band, not as bars
};

struct plot_axis {
    std::string title;
    int logarithm = 0;       // its base, 2 or 10; 0: a linear axis
    bool from_zero = false;  // a linear axis includes 0
    double most = 0;         // the axis reaches at least this value if it is positive
};

struct plot_panel {
    plot_axis x, y;
    std::vector<plot_curve> curves;
};

// Panels row by row. Panels of a row have the same height.
struct plot_figure {
    std::string title;
    std::size_t columns = 1;
    std::vector<plot_panel> panels;
};

// At most four points per column of the range of x: the first, the lowest, the highest and the last. So a long curve
// looks the same, outliers included. Sorts by x and leaves out points that are not finite.
std::vector<plot_point> thinned(std::vector<plot_point> points, std::size_t columns);

// The same points for every format: panels are about this many pixels wide.
inline constexpr std::size_t panel_columns = 300;

// A number as an axis label: "200", "50 k", "1.5 M".
std::string tick_text(double n, int digits = 4);

struct axis_tick {
    double at;
    std::string text;
};
// The visible part of an axis, low < high.
struct axis_scale {
    double low, high;
    int logarithm;  // base, or 0
    std::vector<axis_tick> ticks;

    // The share of the axis before a value, from 0 to 1; values outside are moved to an end.
    [[nodiscard]] double place(double value) const;
};

// Ticks are 1, 2 or 5 times a power of ten apart, at most `most` intervals within the data. On a logarithmic axis they
// are powers of the base, or 1, 2 and 5 times powers of ten where these fit. A range without extent is widened.
axis_scale scale_of_x(plot_panel const& panel, int most = 5);
// As for x. A linear axis ends at ticks, at most one interval beyond the data on either side.
axis_scale scale_of_y(plot_panel const& panel, int most = 5);

// The points of a curve that a panel shows.
std::vector<plot_point> visible(plot_panel const& panel, plot_curve const& curve);

// The figure in words, for those who cannot see it: the first and last value of every curve. Of panels with the same
// title of y only the first counts.
std::string figure_in_words(plot_figure const& figure);

// Colours that people with any colour vision can tell apart on white (Okabe and Ito, without yellow), as #rrggbb.
std::string plot_colour(std::size_t style);

}  // namespace calm::apps
