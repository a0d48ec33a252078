#pragma once
// Plots a run's losses and held-out scores against steps, tokens and seconds.

#include <string>

#include "run/figure.hpp"
#include "run/gnuplot.hpp"

namespace calm::apps {

// The figure of <directory>/metrics.jsonl. Ignores incomplete lines. Throws errc::data if no step was logged, and
// errc::storage if the file cannot be read.
plot_figure training_figure(std::string const& directory);

// Writes the figure as curve.svg, or with gnuplot as curve.png, in the directory. `format` is svg or png. Throws as
// above, and errc::storage if a file cannot be written.
plot_outcome plot_training(std::string const& directory, std::string const& format = "svg");

}  // namespace calm::apps
