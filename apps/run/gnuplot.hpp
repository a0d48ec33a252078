#pragma once
// Plots, by gnuplot where it is installed.

#include <string>

namespace calm::apps {

// One word for a shell, in single quotes.
std::string quoted(std::string const& word);

// A round number as axes have them: "200", "50 k", "1.5 M".
std::string tick_text(double n);

// The lines of a script that make the x axis go from 0 to `most`, with at most six ticks, numbered as above.
std::string x_axis(double most);

// Writes <folder>/<name>.gp and runs gnuplot on it in the folder. The sentence says where the plot is, or how to make
// it. `result` is the file that the script writes, by a line `set output "RESULT"`; it is replaced whole or not at all.
// Throws errc::storage where script or picture cannot be written.
std::string plotted(std::string const& folder, std::string const& name, std::string const& script,
                    std::string const& result);

}  // namespace calm::apps
