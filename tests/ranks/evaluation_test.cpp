// Evaluations by several ranks, here threads, must be bit-identical to the evaluation by one.

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calm/evaluate/evaluate.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/ranks/thread_ranks.hpp"
#include "calm/text/bigram.hpp"
#include "calm/train/session.hpp"

#include "support/models.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"

using namespace calm;
using calm::test::has;

namespace {

constexpr index_t V = 11;
constexpr index_t block = 24;
constexpr special_tokens special{8, 9, 10};
constexpr autoregressive_configuration small_ar{.llama = {.hidden_size = 16,
                                                          .intermediate_size = 24,
                                                          .num_hidden_layers = 1,
                                                          .num_attention_heads = 2,
                                                          .num_key_value_heads = 1},
                                                .vocab_size = V};

// Random ids below the specials, with a few PAD.
std::vector<token_id> text_of(index_t blocks, std::uint64_t seed = 5) {
    random_sequence random({seed, stream::story, 0});
    std::vector<token_id> tokens(static_cast<std::size_t>(blocks * block));
    for (auto& id : tokens) id = static_cast<token_id>(random.below(3));
    for (std::size_t i = 30; i < tokens.size(); i += 71) tokens[i] = special.pad;
    return tokens;
}

// All numbers of an evaluation, with enough digits to be exact.
std::string numbers_of(evaluation const& e) {
    return to_json(e);
}
std::string numbers_of(autoencoder_evaluation const& a) {
    evaluation e;
    e.add(a);
    return to_json(e) + std::to_string(a.patches) + " " + calm::shortest(a.cross_entropy);
}

// evaluate(ranks) must give equal results on one rank and on several.
template <class Evaluate> void check_same(Evaluate const& evaluate) {
    auto const alone = numbers_of(evaluate(nullptr));
    for (int const R : {1, 2, 3, 4}) {
        std::atomic<int> same = 0;
        on_ranks(R, [&](process_group& ranks) { same += numbers_of(evaluate(&ranks)) == alone ? 1 : 0; });
        BOOST_TEST(same == R, R << " ranks");
    }
}

template <class Model> owned_model<Model> made() {
    owned_model<Model> own(V);
    context<> ctx(3, 1);
    initialise(ctx, own.model);
    if constexpr (requires { own.model.ae_model; }) initialise(ctx, own.model.ae_model);
    return own;
}

template <class Model> void check_calm(evaluation_settings settings) {
    auto const text = text_of(45);
    bigram_table const table(V, text_of(20, 6));
    check_same([&](process_group* ranks) {
        auto own = made<Model>();
        context<> ctx(1, 1);
        return evaluate_model(ctx, own.model, text, special, &table, settings, typename Model::objective{}, ranks);
    });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_calm_is_scored_equally_by_any_number_of_ranks) {
    evaluation_settings settings{.block_tokens = block, .samples = 4, .seed = 9, .batch = 2};
    check_calm<calm_model<calm::test::small>>(settings);  // K 2: samples span two patches
    check_calm<calm_model<calm::test::base>>(settings);
    settings.positions = 60;
    check_calm<calm_model<calm::test::small>>(settings);
    settings.sampler = sampler::of(sampling_rule::exact, parse_temperature("1/2"));
    check_calm<calm_model<calm::test::small>>(settings);
}

BOOST_AUTO_TEST_CASE(an_autoencoder_is_scored_equally_by_any_number_of_ranks) {
    using autoencoder_type = calm_model<calm::test::small>::autoencoder_type;
    auto const text = text_of(200);
    evaluation_settings settings{.block_tokens = block, .seed = 9};
    check_same([&](process_group* ranks) {
        auto own = made<autoencoder_type>();
        context<> ctx(1, 1);
        return evaluate_autoencoder(ctx, own.model, text, special.pad, 4, ranks);
    });
    settings.positions = 2300;
    check_same([&](process_group* ranks) {
        auto own = made<autoencoder_type>();
        context<> ctx(1, 1);
        return evaluate_model(ctx, own.model, text, special, settings, ranks);
    });
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_is_scored_equally_by_any_number_of_ranks) {
    auto const text = text_of(30);
    bigram_table const table(V, text_of(20, 6));
    std::vector<index_t> const bytes{1, 2, 3, 1, 1, 1, 1, 1, 0, 0, 0};
    for (index_t const positions : {0, 50}) {
        token_evaluation_settings const settings{
            .block_tokens = block, .samples = 4, .seed = 9, .positions = positions};
        check_same([&](process_group* ranks) {
            auto own = made<autoregressive_model<small_ar>>();
            context<> ctx(1, 1);
            return evaluate_model(ctx, own.model, text, special, &table, settings, bytes, ranks);
        });
    }
}

BOOST_AUTO_TEST_CASE(ranks_that_read_another_text_do_not_evaluate) {
    using model_type = calm_model<calm::test::small>;
    auto const heard = [](auto const& text_here, auto const& settings_here) {
        std::string said;
        try {
            on_ranks(2, [&](process_group& ranks) {
                auto own = made<model_type>();
                context<> ctx(1, 1);
                evaluate_model(ctx, own.model, text_here(ranks.rank()), special, nullptr, settings_here(ranks.rank()),
                               {}, &ranks);
            });
        } catch (error const& e) {
            BOOST_TEST((e.code() == errc::distributed));
            said = e.what();
        }
        return said;
    };
    auto const alike = [](int) { return evaluation_settings{.block_tokens = block, .samples = 4}; };
    auto const same = [](int) { return text_of(8); };
    BOOST_TEST(heard(same, alike) == "");
    auto const other = heard(
        [](int rank) {
            auto text = text_of(8);
            text[100] = rank == 0 ? 1 : 2;
            return text;
        },
        alike);
    BOOST_TEST(has(other, "checksum of the text: rank 1 has '"), other);
    auto const longer = heard([](int rank) { return text_of(8 + rank); }, alike);
    BOOST_TEST(has(longer, "checksum of the text: rank 1 has '"), longer);
    auto const more =
        heard(same, [](int rank) { return evaluation_settings{.block_tokens = block, .samples = 4 + rank}; });
    BOOST_TEST(has(more, "samples: rank 1 has '5', rank 0 has '4'"), more);
    auto const colder = heard(same, [](int rank) {
        return evaluation_settings{.block_tokens = block,
                                   .samples = 4,
                                   .sampler = sampler::adaptive(parse_temperature(rank == 0 ? "1" : "1/2"))};
    });
    BOOST_TEST(has(colder, "sampler: rank 1 has 'adaptive"), colder);
}

// A rank that sends impossible values: sizes, piece numbers, counts.
BOOST_AUTO_TEST_CASE(results_of_other_ranks_are_validated) {
    struct found {
        index_t number;
        double result;
    };
    auto const heard = [](std::vector<found> const& lies, std::size_t bytes_less, index_t pieces) {
        std::string said;
        try {
            on_ranks(2, [&](process_group& ranks) {
                double sum = 0;
                detail::piece_results<double> results(
                    &ranks, [&](double one) { sum += one; }, [](double const& one) { return one < 100; });
                if (ranks.is_first()) {
                    results.add(0, 1);
                    results.end(pieces);
                    if (sum != 3) throw error(errc::usage, "another sum");
                    return;
                }
                auto const bytes = std::as_bytes(std::span(lies));
                static_cast<void>(gather_messages(ranks, bytes.first(bytes.size() - bytes_less), 1000));
            });
        } catch (error const& e) {
            said = e.what();
        }
        return said;
    };
    BOOST_TEST(heard({{1, 2}}, 0, 2) == "");
    for (auto const& lies : {std::vector<found>{{2, 2}}, {{-1, 2}}, {{0, 2}}, {{1, 100}}})
        BOOST_TEST(has(heard(lies, 0, 2), "expected at most one result for each of 2 pieces"));
    BOOST_TEST(has(heard({{1, 2}}, 3, 2), "expected results of 16 bytes each"));
    BOOST_TEST(has(heard({{1, 2}, {2, 2}}, 0, 2), "expected a message of at most 16 bytes, found one of 32"));
    for (index_t const count : {index_t{-1}, std::numeric_limits<index_t>::max()})
        BOOST_CHECK_EXCEPTION(on_ranks(2,
                                       [&](process_group& ranks) {
                                           std::array<index_t, 2> counts{1, ranks.is_first() ? 1 : count};
                                           detail::all_reduce(&ranks, counts);
                                       }),
                              error, [](error const& e) {
                                  return e.code() == errc::distributed &&
                                         has(e.what(), "rank 1: expected a count from 0");
                              });
}

BOOST_AUTO_TEST_CASE(every_piece_has_one_rank) {
    BOOST_TEST(detail::is_done_here(nullptr, 7));
    std::array<std::atomic<int>, 9> done{};
    on_ranks(3, [&](process_group& ranks) {
        for (index_t i = 0; i < std::ssize(done); ++i)
            if (detail::is_done_here(&ranks, i)) done[static_cast<std::size_t>(i)] += 1 + 10 * ranks.rank();
    });
    for (std::size_t i = 0; i < done.size(); ++i) BOOST_TEST(done[i].load() == 1 + 10 * static_cast<int>(i % 3));
}
