// tokenize: shows the tokens of a text.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::tokenize_main(argc, argv);
}
