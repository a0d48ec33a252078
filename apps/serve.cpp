// serve: answers completions over HTTP.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::serve_main(argc, argv);
}
