// generate: generates text with a stored language model.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::generate_main(argc, argv);
}
