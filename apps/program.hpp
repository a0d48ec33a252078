#pragma once
// What every program does: run, say on standard error what went wrong, exit with its number; and stop when asked to.
// A file that somebody shortens while it is mapped is an error as any other.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// Whoever read the standard output is gone: no error of ours, and nobody is there to hear of it.
struct reader_gone {};

// Runs a program's body. Errors become one sentence on standard error and their code (design: 2 usage .. 10 storage),
// missing memory 7, a reader that is gone 141 without a word. Where standard input, output or error is closed, no file
// of ours takes its number, and using it fails.
int run_program(char const* name, std::function<int()> const& body);

// What an exception that was caught comes to: an exit status, and what to say, perhaps nothing. To be called where it
// is being handled.
struct failure {
    int status;
    std::string text;
};
failure failure_now();

// From here on nothing is said, or again: of several processes that do one job one speaks.
void hold_tongue(bool on);

// Says something on standard error, as one line whatever paths and values it names: a printable_line(). All that the
// programs say there goes this way, or is numbers.
void tell(std::string_view sentence);
// The same of every line of a text, e.g. a table, whose cells are lines already.
void tell_lines(std::string_view text);
// The lines of a text, without their ends.
std::vector<std::string> lines_of(std::string_view text);

// From here on SIGINT, SIGTERM, SIGHUP and SIGPIPE are noted, unless whoever started the program had them ignored
// (nohup). The first SIGINT or SIGTERM is answered by a line, a second one ends the program at once; a terminal that
// goes away sends several SIGHUP, and of a pipe that is gone every further line would come back, so these are noted
// once.
void note_signals();
// The first signal that came, or 0. A program that stopped for it exits with 128 + signal.
int noted_signal();
// As if that one had come here: it came to another process of the same job.
void take_signal(int number);

}  // namespace calm::apps
