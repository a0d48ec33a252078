#pragma once
// How a run went: its losses, and what it scored on held-out text, against steps, tokens and seconds.

#include <string>

#include "run/gnuplot.hpp"

namespace calm::apps {

// Reads <directory>/metrics.jsonl and writes beside it curve-steps.tsv and curve-evaluations.tsv (what is plotted),
// curve.gp and, by gnuplot, curve.png or curve.svg. A line that an ended run left unfinished is passed over. Throws
// errc::data where no step was logged, errc::storage where a file cannot be read or written.
plot_outcome plot_training(std::string const& directory, std::string const& format = "png");

}  // namespace calm::apps
