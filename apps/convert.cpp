// convert: writes a stored model in another layout or precision.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::convert_main(argc, argv);
}
