#pragma once
// A line of standard error that a program overwrites while it works.

#include <cstddef>
#include <string_view>

namespace calm::apps {

// Width of the terminal minus one: after the last column the cursor would move to a new line. Queried each time, since
// the terminal may be resized. A file or a pipe takes lines of any length.
std::size_t terminal_columns();

class terminal_line {
public:
    // Whether standard error is a terminal that can overwrite its line. Otherwise the functions do nothing.
    [[nodiscard]] static bool is_possible();

    // Shows as much of the text as fits, instead of the text before.
    void show(std::string_view text);
    // Removes the text.
    void clear();
    // Ends the line, so that a message starts on a new one.
    void end();

private:
    std::size_t width_ = 0;  // of the text that is shown
};

}  // namespace calm::apps
