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

// What became of a picture.
struct plot_outcome {
    std::string sentence;  // where it is, or why there is none and how to make it
    bool made = false;
};
// The exit status of a program that is there to draw, where a picture was not made.
inline constexpr int no_picture = 12;

// Writes <folder>/<name>.gp and runs gnuplot on it in the folder; of what gnuplot complains of, the outcome has the
// last line. `result` is the file that the script writes, by a line `set output "RESULT"`; it is replaced whole or not
// at all. Throws errc::storage where script or picture cannot be written.
plot_outcome plotted(std::string const& folder, std::string const& name, std::string const& script,
                     std::string const& result);

}  // namespace calm::apps
