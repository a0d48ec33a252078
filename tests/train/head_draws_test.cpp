// Every kind of head, trained for a second, draws latents of the scale of its targets, on every device.

#include <boost/mpl/list.hpp>

#include <cmath>
#include <numeric>
#include <vector>

#include "calm/model/heads.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/markov.hpp"
#include "calm/train/session.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// A type for each case, because Boost names a typed case by its type.
template <class Head, class Backend> struct head_on {
    static constexpr configuration<Head> value = with_head(base, Head{});
    using backend = Backend;
};
using heads = boost::mpl::list<head_on<energy, cpu>, head_on<flow, cpu>, head_on<diffusion, cpu>, head_on<margin, cpu>,
                               head_on<drafted, cpu>, head_on<energy, emulated>, head_on<flow, emulated>,
                               head_on<diffusion, emulated>, head_on<margin, emulated>, head_on<drafted, emulated>>;

constexpr index_t block = 32;

corpus const& text() {
    static corpus const one =
        build_corpus(std::vector<std::string>{"markov:20000"}, tokenizer::of_symbols(markov_alphabet), {});
    return one;
}

constexpr index_t K = base.autoencoder.patch_size;

// Trained on the cpu, once for all heads.
autoencoder<base.autoencoder>& trained_autoencoder() {
    static auto own = [] {
        context<> ctx(1, 1);
        auto ae = make_autoencoder<base>(ctx, tokenizer::of_symbols(markov_alphabet).vocabulary_size());
        autoencoder_recipe recipe;
        recipe.steps = 60;
        recipe.learning_rate = 4e-3;
        recipe.warmup = 5;
        recipe.batch_tokens = 512;
        text_blocks patches(text(), K, K, 1, packing::unbroken);
        train_autoencoder(ctx, ae.model, patches, recipe);
        return ae;
    }();
    return own.model;
}

// Trained on the cpu, once per head.
template <model_configuration auto C> calm_model<C>& trained() {
    static auto own = [] {
        context<> ctx(1, 1);
        auto lm = make_calm<C>(ctx, trained_autoencoder());
        calm_recipe<typename calm_model<C>::objective> recipe;
        recipe.steps = 150;
        recipe.learning_rate = 2e-3;
        recipe.warmup = 10;
        recipe.sequences = 8;
        recipe.block_tokens = block;
        recipe.objective.samples = 8;
        if constexpr (requires { recipe.objective.targets; }) recipe.objective.targets = 8;
        text_blocks blocks(text(), K, block, 1, packing::unbroken);
        train_calm(ctx, lm.model, blocks, recipe);
        return lm;
    }();
    return own.model;
}

template <class V> double rms(V const& numbers) {
    return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0) /
                     static_cast<double>(numbers.size()));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(draws_have_the_scale_of_their_targets, on, heads) {
    using backend = typename on::backend;
    using model_type = calm_model<on::value, space<backend>>;
    constexpr index_t L = model_type::L, sequences = 4, samples = 4;
    context<backend> ctx(1, 1);
    owned_model<model_type> own(tokenizer::of_symbols(markov_alphabet).vocabulary_size(), model_mode::inference);
    copy_parameters(ctx, own.model, trained<on::value>());

    std::vector<token_id> tokens(static_cast<std::size_t>(sequences * block));
    text_blocks(text(), K, block, 2, packing::unbroken)(tokens);
    auto cache = own.model.make_cache(sequences, block / K);
    auto const hidden = own.model.extend(ctx, std::span<token_id const>(tokens), cache, cache.all());
    std::vector<row_rng> rngs;
    for (index_t r = 0; r < hidden.extent(0); ++r)
        rngs.push_back({{17, stream::generation, static_cast<std::uint32_t>(r)}, 0});
    numbers<float, backend> z(rngs.size() * static_cast<std::size_t>(samples * L));
    own.model.sample_latents(ctx, out_rows<backend, L>(z), hidden, rngs);

    auto& host = trained<on::value>();
    context<> here(1, 1);
    auto const next = host.ae_model.posterior(here, unique(here, as_vector(tokens), host.vocabulary()));
    std::vector<double> targets;
    for (index_t i = 0; i < next.mean.size(); ++i)
        targets.push_back(std::hypot(next.mean[i], std::exp(next.log_std[i])));  // the root mean square of one draw
    double const ratio = rms(copied(z)) / rms(targets);
    BOOST_TEST_MESSAGE("rms of draws / rms of targets: " << ratio);
    BOOST_TEST(ratio > 0.5);
    BOOST_TEST(ratio < 2);
}
