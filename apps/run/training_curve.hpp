#pragma once
// Plots a run's losses and held-out scores against steps, tokens and seconds.

#include <string>

#include "run/gnuplot.hpp"

namespace calm::apps {

// Reads <directory>/metrics.jsonl and writes curve-steps.tsv, curve-evaluations.tsv (the plotted data) and curve.gp
// next to it, then curve.png or curve.svg with gnuplot. Ignores incomplete lines. Throws errc::data if no step was
// logged, and errc::storage if a file cannot be read or written.
plot_outcome plot_training(std::string const& directory, std::string const& format = "png");

}  // namespace calm::apps
