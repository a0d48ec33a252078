#pragma once
// Draws a figure as PNG with gnuplot, if it is installed.

#include <string>

#include "run/figure.hpp"

namespace calm::apps {

// The outcome of plotting.
struct plot_outcome {
    std::string sentence;  // the picture's path, or why there is none and what to do
    bool made = false;
};
// Exit status of a program whose purpose is a picture that was not made.
inline constexpr int no_picture = 12;

// A gnuplot script that contains the points and writes `result`.
std::string gnuplot_script(plot_figure const& figure, std::string const& result);

// Writes <folder>/<name>.gp and runs gnuplot on it in the folder, which writes <name>.png; on failure the outcome
// quotes gnuplot's last line. The picture is replaced atomically. Throws errc::storage if script or picture cannot be
// written.
plot_outcome plotted_as_png(plot_figure const& figure, std::string const& folder, std::string const& name);

}  // namespace calm::apps
