// evaluate: scores stored models on held-out text.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::evaluate_main(argc, argv);
}
