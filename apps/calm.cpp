// calm: all programs in one, calm train, calm generate and so on.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::calm_main(argc, argv);
}
