// train: all that a CALM of a text takes; a tokenizer, an autoencoder, a language model of either kind.

#include "command/command_line.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/text_run.hpp"
#include "text/text_data.hpp"

using namespace calm::apps;

namespace {

struct perform {
    int operator()(text_options const& o) const { return train_text(o); }
    int operator()(tokenizer_options const& o) const { return train_tokenizer(o); }
    int operator()(train_autoencoder_command const& o) const {
        return calm_named(o.configuration).on(o.device).train_autoencoder(o);
    }
    int operator()(train_calm_command const& o) const { return calm_named(o.configuration).on(o.device).train_calm(o); }
    int operator()(train_ar_command const& o) const {
        return autoregressive_named(o.configuration).on(o.device).train_autoregressive(o);
    }
};

}  // namespace

int main(int argc, char** argv) {
    return run_program("train", [&] {
        auto const command = read_train(argc, argv);
        return command ? std::visit(perform{}, *command) : 0;
    });
}
