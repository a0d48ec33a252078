#pragma once
// The programs as functions: each takes the arguments of main() and returns the exit status. Every program has a main()
// of its own, and `calm NAME` calls the same function.

namespace calm::apps {

int convert_main(int argc, char const* const* argv);
int evaluate_main(int argc, char const* const* argv);
int generate_main(int argc, char const* const* argv);
int inspect_main(int argc, char const* const* argv);
int plot_main(int argc, char const* const* argv);
int serve_main(int argc, char const* const* argv);
int sweep_main(int argc, char const* const* argv);
int tokenize_main(int argc, char const* const* argv);
int train_main(int argc, char const* const* argv);

// The program `calm`, whose first argument names one of the others.
int calm_main(int argc, char const* const* argv);

}  // namespace calm::apps
