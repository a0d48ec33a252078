// train: trains a tokenizer, an autoencoder, a CALM or an autoregressive model, or all that a text needs.

#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "run/initial_weights.hpp"
#include "run/rank_agreement.hpp"
#include "run/ranks.hpp"
#include "run/text_run.hpp"
#include "text/text_data.hpp"
#include "training_jobs.hpp"

namespace calm::apps {

namespace {

struct perform {
    int operator()(text_options const& o) const {
        return trained(o, [](text_options const& here) { return train_text(here); });
    }
    int operator()(tokenizer_options const& o) const {
        return at_first_rank([&] { return train_tokenizer(o); });
    }
    int operator()(train_autoencoder_command const& o) const {
        return trained(o, configuration_to_train(o, model_kind::autoencoder), train_autoencoder);
    }
    int operator()(train_calm_command const& o) const {
        return trained(o, configuration_to_train(o, model_kind::calm), train_calm);
    }
    int operator()(train_ar_command const& o) const {
        return trained(o, configuration_to_train(o, model_kind::autoregressive), train_autoregressive);
    }

private:
    template <class Options, class Train> static int trained(Options o, Train const& train) {
        if (o.dry_run) return at_first_rank([&] { return train(o); });
        set_threads_and_timeout(o);
        return train(o);
    }
    static int trained(train_options const& o, configuration_and_init const& from,
                       int (*train)(training_job const&, train_options const&)) {
        training_job const job{from.configuration, from.configuration.on(o.device), from.init};
        return trained(o, [&](train_options const& here) { return train(job, here); });
    }
};

}  // namespace

int train_main(int argc, char const* const* argv) {
    return run_program("train", [&] {
        return run_on_ranks("train", [&] {
            auto const command = read_on_all_ranks(
                [&] { return read_train(argc, argv); },
                [](auto const& any) { return std::visit([](auto const& o) { return o.rank_settings; }, any); });
            return command ? std::visit(perform{}, *command) : 0;
        });
    });
}

}  // namespace calm::apps
