#pragma once
// Plots with gnuplot, if it is installed.

#include <string>

namespace calm::apps {

// Quotes a word for the shell, in single quotes.
std::string quoted(std::string const& word);

// A round number as an axis label: "200", "50 k", "1.5 M".
std::string tick_text(double n);

// gnuplot commands for an x axis from 0 to `most` with at most six ticks labelled by tick_text().
std::string x_axis(double most);

// The outcome of plotting.
struct plot_outcome {
    std::string sentence;  // the picture's path, or why there is none and how to make it
    bool made = false;
};
// Exit status of a program whose purpose is a picture that was not made.
inline constexpr int no_picture = 12;

// Writes <folder>/<name>.gp and runs gnuplot on it in the folder; on failure the outcome quotes gnuplot's last line.
// `result` is the file that the script sets by a line `set output "RESULT"`. It is replaced atomically. Throws
// errc::storage if script or picture cannot be written.
plot_outcome plotted(std::string const& folder, std::string const& name, std::string const& script,
                     std::string const& result);

}  // namespace calm::apps
