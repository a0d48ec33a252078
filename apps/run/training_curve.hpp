#pragma once
// How a run went: its losses, and what it scored on held-out text, against steps, tokens and seconds.

#include <string>

namespace calm::apps {

// Reads <directory>/metrics.jsonl and writes beside it curve-steps.tsv and curve-evaluations.tsv (what is plotted),
// curve.gp and, by gnuplot, curve.png or curve.svg. The sentence says where the plot is, or how to make it. A line that
// an ended run left unfinished is passed over. Throws errc::data where no step was logged, errc::storage where a file
// cannot be read or written.
std::string plot_training(std::string const& directory, std::string const& format = "png");

}  // namespace calm::apps
