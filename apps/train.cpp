// train: all that a CALM of a text takes; a tokenizer, an autoencoder, a language model of either kind.

#include "command/command_line.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/ranks.hpp"
#include "run/text_run.hpp"
#include "text/text_data.hpp"

using namespace calm::apps;

namespace {

// As an option of this process says what it has of the machine.
template <class Options> Options on_this_rank(Options o) {
    o.threads = threads_of_rank(o.threads);
    if (auto* const all = ranks(); all != nullptr) all->timeout = static_cast<double>(o.timeout);
    return o;
}

struct perform {
    int operator()(text_options const& o) const {
        return trained(o, [](text_options const& here) { return train_text(here); });
    }
    int operator()(tokenizer_options const& o) const {
        return at_first_rank([&] { return train_tokenizer(o); });
    }
    int operator()(train_autoencoder_command const& o) const {
        return trained(o, calm_named(o.configuration).on(o.device).train_autoencoder);
    }
    int operator()(train_calm_command const& o) const {
        return trained(o, calm_named(o.configuration).on(o.device).train_calm);
    }
    int operator()(train_ar_command const& o) const {
        return trained(o, autoregressive_named(o.configuration).on(o.device).train_autoregressive);
    }

private:
    template <class Options, class Train> static int trained(Options const& o, Train const& train) {
        if (o.dry_run) return at_first_rank([&] { return train(o); });
        return train(on_this_rank(o));
    }
};

}  // namespace

int main(int argc, char** argv) {
    return run_program("train", [&] {
        return run_on_ranks("train", [&] {
            auto const command = read_train(argc, argv);
            return command ? std::visit(perform{}, *command) : 0;
        });
    });
}
