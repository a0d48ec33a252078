#pragma once
// What every program does: run, say on standard error what went wrong, exit with its number; and stop when asked to.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// Runs a program's body. Errors become one sentence on standard error and their code (design: 2 usage .. 10 storage),
// missing memory 7.
int run_program(char const* name, std::function<int()> const& body);

// Says something on standard error, as one line whatever paths and values it names: a printable_line(). All that the
// programs say there goes this way, or is numbers.
void tell(std::string_view sentence);
// The same of every line of a text, e.g. a table, whose cells are lines already.
void tell_lines(std::string_view text);
// The lines of a text, without their ends.
std::vector<std::string> lines_of(std::string_view text);

// From here on SIGINT and SIGTERM are noted: a second one ends the program at once.
void note_signals();
// The signal that came, or 0. A program that stopped for it exits with 128 + signal.
int noted_signal();

}  // namespace calm::apps
