#pragma once
// Shared by all programs: run the body, report errors on standard error, exit with their status, stop on a signal.
// Truncating a file while it is mapped is reported like any other error.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// Thrown when the reader of standard output is gone. Not an error, and nothing is reported.
struct reader_gone {};

// Runs a program's body. An error prints one sentence on standard error and returns its code (errc, 2 to 11). Running
// out of memory returns 7, and reader_gone returns 141 silently. A closed standard stream keeps its descriptor number
// reserved, so that no opened file takes it and using the stream fails.
int run_program(char const* name, std::function<int()> const& body);

// From here on the programs run as subcommands of `calm`, which was started as `path`.
void run_as_subcommands(std::string path);
// What messages call a program or one of its commands: "train text", or "calm train text" for a subcommand.
std::string called(std::string const& program);
// The words that start a program: {"train"}, or {path of calm, "train"} for a subcommand.
std::vector<std::string> words_that_start(std::string const& program);

// Exit status and message of the exception being handled; call it inside a catch block. The message may be empty.
struct failure {
    int status;
    std::string text;
};
failure failure_now();

// Mutes log_line(), or ends muting: of several ranks only one reports.
void mute(bool on);

// Prints a message on standard error as one printable_line(), whatever paths and values it contains. All messages of
// the programs use this function or are numbers.
void log_line(std::string_view sentence);
// Calls log_line() for each line of a text, such as a table whose cells are already printable.
void log_lines(std::string_view text);
// The lines of a text, without newlines.
std::vector<std::string> lines_of(std::string_view text);
// All parts, with `between` between two of them.
std::string joined(std::vector<std::string> const& parts, std::string_view between);

// From here on SIGINT, SIGTERM, SIGHUP and SIGPIPE are recorded. SIGHUP and SIGPIPE stay ignored if they already were
// (nohup). The first SIGINT or SIGTERM prints `answer`, a line, and a second one ends the program at once. SIGHUP and
// SIGPIPE may repeat and are recorded once.
void note_signals(char const* answer);
// The first signal received, or 0. A program that stops because of it exits with 128 + signal.
int noted_signal();
// Acts as if this process had received a signal that another process of the job received.
void take_signal(int number);

}  // namespace calm::apps
