// Writing with random weights: milliseconds a patch of all texts together, of one text and of 64, at T = 1 and at T =
// 1/2 by the batch rule with a pool of 200 draws, as the oracle's bench.py has.
//
//     generation tiny|calm-m
//
// What tiny writes is first compared with what it writes by the block kernels on the host, token by token.

#include "../configurations.hpp"
#include "../writing.hpp"
#include "device.hpp"

namespace {

using namespace bench;

template <calm::model_configuration auto C, class Backend> struct writer {
    using model_type = calm::calm_model<C, calm::space<Backend>>;
    calm::resident<model_type> lm{C.autoencoder.vocab_size, calm::held_for::use};
    explicit writer(calm::context<Backend> const& ctx) {
        initialise(ctx, lm.model.ae_model);
        initialise(ctx, lm.model);
        fill_zeros(ctx, lm.model);
    }
};

void compare_with_host() {
    for (index_t const draws : {1, 5})
        agree_with_host(draws == 1 ? "texts of tiny at T = 1" : "texts of tiny at T = 1/2", 0,
                        [draws]<class B>(calm::context<B>& ctx) {
                            writer<tiny, B> w(ctx);
                            writing<typename writer<tiny, B>::model_type, B> texts(ctx, w.lm.model, 2, draws, 4);
                            std::vector<float> all;
                            for (int patch = 0; patch < 3; ++patch) {
                                texts.patch();
                                for (auto const id : texts.last()) all.push_back(static_cast<float>(id));
                            }
                            return all;
                        });
}

template <calm::model_configuration auto C> void time_writing(std::string const& configuration) {
    constexpr index_t most_patches = 3200;  // more than time_of asks for, twice
    device_context ctx(1);
    writer<C, device> w(ctx);
    auto const bytes = static_cast<double>(bytes_of_a_patch(w.lm.model));
    for (index_t const texts : {index_t{1}, sized(64, 3)})
        for (index_t const draws : {index_t{1}, sized(200, 5)}) {
            writing<typename writer<C, device>::model_type, device> all(ctx, w.lm.model, texts, draws, most_patches);
            ctx.uses_graphs = false;
            auto const by_kernels = time_of(ctx, [&] { all.patch(); });
            ctx.uses_graphs = true;
            for (int i = 0; i < 3; ++i) all.patch();  // until they are recorded
            auto const seconds = time_of(ctx, [&] { all.patch(); });
            auto const number = static_cast<double>(texts);
            say_row(configuration + ", " + (texts == 1 ? "one text" : "64 texts") +
                        ", T = " + (draws == 1 ? "1" : "1/2, 200 draws"),
                    {{"ms", seconds.median * 1e3},
                     {"fastest", seconds.lowest * 1e3},
                     {"slowest", seconds.highest * 1e3},
                     {"ms_by_kernels", by_kernels.median * 1e3},
                     {"tokens_per_s", number * static_cast<double>(w.lm.model.K) / seconds.median},
                     {"bytes", bytes}});
        }
}

bool time_configuration(std::string_view name) {
    if (name == "tiny") return time_writing<tiny>("tiny"), true;
#ifdef __CUDACC__
    if (name == "calm-m") return time_writing<calm_m>("calm-m"), true;
#endif
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    return run([&] {
        compare_with_host();
        for (auto const* name : std::span(argv, static_cast<std::size_t>(argc)).subspan(1))
            calm::require(time_configuration(name), calm::errc::usage,
                          "generation: expected tiny or calm-m, the emulated device tiny alone, found ", name);
    });
}
