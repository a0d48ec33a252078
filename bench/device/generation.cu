// Generation with random weights after a prompt of 16 patches: milliseconds per patch of all texts together, for one
// text and for 64. T = 1, and T = 1/2 by the batch rule with a pool of 200 draws, as in bench/reference/bench.py. One
// text is also timed after a prompt of 2,000 patches.
//
//     generation [profile] tiny|calm-m
//
// After the word `profile`, also times each kernel of a patch.
//
// First compares tiny's output, token by token, with its output by the block kernels on the host.

#include "../configurations.hpp"
#include "../generation.hpp"
#include "device.hpp"
#include "profile.hpp"

namespace {

using namespace bench;

template <calm::model_configuration auto C, class Space> struct writer {
    using model_type = calm::calm_model<C, Space>;
    calm::owned_model<model_type> lm{C.autoencoder.vocab_size, calm::model_mode::inference};
    explicit writer(calm::context<typename Space::backend> const& ctx) {
        if constexpr (calm::is_trainable<Space>) {
            initialise(ctx, lm.model.ae_model);
            initialise(ctx, lm.model);
            fill_zeros(ctx, lm.model);
        } else {
            writer<C, calm::space<typename Space::backend>> full(ctx);  // its weights are rounded to bf16
            copy_parameters(ctx, parameters_of(lm.model), parameters_of(full.lm.model));
            copy_parameters(ctx, parameters_of(lm.model.ae_model), parameters_of(full.lm.model.ae_model));
            ctx.wait();
        }
    }
};

void compare_with_host() {
    for (index_t const draws : {1, 5})
        agree_with_host(draws == 1 ? "texts of tiny at T = 1" : "texts of tiny at T = 1/2", 0,
                        [draws]<class B>(calm::context<B>& ctx) {
                            using writer_type = writer<tiny, calm::space<B>>;
                            writer_type w(ctx);
                            writing<typename writer_type::model_type, B> texts(ctx, w.lm.model, 2, draws, 4);
                            std::vector<float> all;
                            for (int patch = 0; patch < 3; ++patch) {
                                texts.patch();
                                for (auto const id : texts.last()) all.push_back(static_cast<float>(id));
                            }
                            return all;
                        });
}

index_t left = 0;  // operations that fell back to the block kernels
bool profile = false;

template <class Model>
void time_texts(device_context& ctx, Model& model, std::string const& name, index_t texts, index_t draws,
                index_t prompt = 16) {
    constexpr index_t most_patches = 3200;  // enough for two calls of time_of
    writing<Model, device> all(ctx, model, texts, draws, most_patches, prompt);
    ctx.uses_graphs = false;
    auto const by_kernels = time_of(ctx, [&] { all.patch(); });
    ctx.uses_graphs = true;
    for (int i = 0; i < 3; ++i) all.patch();  // until graphs are captured
    auto const seconds = time_of(ctx, [&] { all.patch(); });
    print_row(name, {{"ms", seconds.median * 1e3},
                     {"fastest", seconds.lowest * 1e3},
                     {"slowest", seconds.highest * 1e3},
                     {"ms_by_kernels", by_kernels.median * 1e3},
                     {"tokens_per_s", static_cast<double>(texts * model.K) / seconds.median},
                     {"bytes", static_cast<double>(bytes_of_a_patch(model))}});
    if (profile) print_profile(ctx, name, [&] { all.patch(); });
}

// At T = 1 and, with `at_half`, at T = 1/2.
template <calm::model_configuration auto C, class Space> void time_writing(std::string const& name, bool at_half) {
    device_context ctx(1);
    writer<C, Space> w(ctx);
    auto const many = sized(64, 3), long_prompt = sized(2000, 40);
    time_texts(ctx, w.lm.model, name + ", one text, T = 1", 1, 1);
    time_texts(ctx, w.lm.model, name + ", one text, 2,000 patches before, T = 1", 1, 1, long_prompt);
    time_texts(ctx, w.lm.model, name + ", 64 texts, T = 1", many, 1);
    if (at_half) {
        auto const draws = sized(200, 5);
        time_texts(ctx, w.lm.model, name + ", one text, T = 1/2, 200 draws", 1, draws);
        time_texts(ctx, w.lm.model, name + ", 64 texts, T = 1/2, 200 draws", many, draws);
    }
    left += left_by(ctx);
}

// With weights in bf16, and in fp32.
template <calm::model_configuration auto C> void time_both(std::string const& name) {
    time_writing<C, calm::bf16_weights_on<device>>(name + " in bf16", false);
    time_writing<C, calm::space<device>>(name, true);
}

bool time_configuration(std::string_view name) {
    if (name == "tiny") return time_both<tiny>("tiny"), true;
#ifdef __CUDACC__
    if (name == "calm-m") return time_both<calm_m>("calm-m"), true;
#endif
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    return run([&] {
        compare_with_host();
        for (std::string_view const word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
            if (word == "profile")
                profile = true;
            else
                calm::require(time_configuration(word), calm::errc::usage,
                              "generation: expected profile, tiny or calm-m, the emulated device tiny alone, found ",
                              word);
        }
        left_nothing("generation", left);
    });
}
