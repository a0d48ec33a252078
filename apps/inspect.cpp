// inspect: describes a model directory.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::inspect_main(argc, argv);
}
