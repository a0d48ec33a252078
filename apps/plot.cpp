// plot: draws the training curve of a run.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::plot_main(argc, argv);
}
