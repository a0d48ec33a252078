// sweep: trains and evaluates several configurations on one text.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::sweep_main(argc, argv);
}
