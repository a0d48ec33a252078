// train: trains a tokenizer, an autoencoder, a CALM or an autoregressive model, or all that a text needs.
#include "programs/programs.hpp"

int main(int argc, char** argv) {
    return calm::apps::train_main(argc, argv);
}
