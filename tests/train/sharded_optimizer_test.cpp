#include "calm/train/detail/sharded_optimizer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <vector>

#include "calm/ranks/thread_ranks.hpp"
#include "calm/train/detail/adamw.hpp"

#include "support/sentences.hpp"
#include "support/terms_of_ranks.hpp"

using namespace calm;
using calm::test::has;
using calm::test::term;
using calm::test::tree_sum;

namespace {

// Parameters with memory, some of several ranges, some empty.
class parts {
public:
    explicit parts(std::vector<index_t> const& sizes) : sizes_(sizes) {
        for (auto const size : sizes) {
            values_.emplace_back(static_cast<std::size_t>(size));
            gradients_.emplace_back(static_cast<std::size_t>(size));
        }
    }
    [[nodiscard]] std::vector<any_parameter<>> parameters() {
        std::vector<any_parameter<>> all;
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
            extents<dyn> const shape(sizes_[i]);
            all.push_back({"p",
                           {sizes_[i]},
                           {values_[i].data(), shape},
                           {gradients_[i].data(), shape},
                           role::weight,
                           false,
                           false,
                           nullptr,
                           nullptr,
                           nullptr});
        }
        return all;
    }
    std::vector<std::vector<float>>& values() { return values_; }
    std::vector<std::vector<float>>& gradients() { return gradients_; }

private:
    std::vector<index_t> sizes_;
    std::vector<std::vector<float>> values_;
    std::vector<std::vector<float>> gradients_;
};

std::vector<index_t> const sizes{20000, 0, 5, 40001, 3, 16384};
constexpr index_t elements = 20000 + 5 + 40001 + 3 + 16384;

}  // namespace

BOOST_AUTO_TEST_CASE(shards_are_whole_ranges_that_cover_everything) {
    for (int const R : {1, 2, 3, 4, 8}) {
        std::mutex together;
        std::vector<index_t> owned(static_cast<std::size_t>(R));
        std::vector<std::vector<int>> owners;
        for (auto const size : sizes) owners.emplace_back(static_cast<std::size_t>(size));
        on_ranks(R, [&](process_group& ranks) {
            context<> const ctx(0, 1);
            parts all(sizes);
            sharded_optimizer<space<>> const shares(ctx, all.parameters(), ranks);
            std::scoped_lock const lock(together);
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                auto const own = shares.own(i);
                BOOST_TEST((own.begin % 16384 == 0 || own.begin == sizes[i]));
                BOOST_TEST((own.end % 16384 == 0 || own.end == sizes[i]));
                owned[static_cast<std::size_t>(ranks.rank())] += own.end - own.begin;
                for (index_t j = own.begin; j < own.end; ++j) ++owners[i][static_cast<std::size_t>(j)];
            }
        });
        for (auto const& each : owners) BOOST_TEST(std::ranges::count(each, 1) == std::ssize(each));
        for (auto const each : owned) BOOST_TEST(each <= elements / R + 16384);
    }
}

BOOST_AUTO_TEST_CASE(gradients_add_up_in_the_tree_and_values_are_gathered) {
    for (int const R : {2, 3, 4})
        for (index_t const piece : {1000, 16384, 1000000}) {
            std::vector<int> good(static_cast<std::size_t>(R));
            on_ranks(R, [&](process_group& ranks) {
                int const r = ranks.rank();
                context<> const ctx(0, 1);
                parts all(sizes);
                sharded_optimizer<space<>> shares(ctx, all.parameters(), ranks, piece,
                                                  piece == 16384 ? 30000 : 1000000);
                index_t owned = 0;
                for (std::size_t i = 0; i < sizes.size(); ++i) {
                    owned += shares.own(i).end - shares.own(i).begin;
                    for (index_t j = 0; j < sizes[i]; ++j)
                        all.gradients()[i][static_cast<std::size_t>(j)] = term(r, i, j);
                }
                shares.sum_gradients();
                bool fine = ranks.bytes_sent() == 4U * static_cast<std::uint64_t>(elements - owned);
                for (std::size_t i = 0; i < sizes.size(); ++i)
                    for (index_t j = 0; j < sizes[i]; ++j) {
                        bool const mine = j >= shares.own(i).begin && j < shares.own(i).end;
                        float const got = all.gradients()[i][static_cast<std::size_t>(j)];
                        fine &= got == (mine ? tree_sum(0, R, i, j) : 0.0F);
                        if (mine) all.values()[i][static_cast<std::size_t>(j)] = 1.0F + term(r, i, j);
                    }
                auto const before = ranks.bytes_sent();
                shares.all_gather_values();
                fine &= ranks.bytes_sent() - before ==
                        4U * static_cast<std::uint64_t>(owned) * static_cast<std::uint64_t>(R - 1);
                std::vector<std::vector<float>> seen;  // values of rank 0
                for (auto const& each : all.values()) seen.push_back(each);
                for (auto& each : seen) ranks.broadcast(std::span(each));
                for (std::size_t i = 0; i < sizes.size(); ++i) {
                    fine &= seen[i] == all.values()[i];
                    for (index_t j = shares.own(i).begin; j < shares.own(i).end; ++j)
                        fine &= seen[i][static_cast<std::size_t>(j)] == 1.0F + term(r, i, j);
                }
                good[static_cast<std::size_t>(r)] = fine ? 1 : 0;
            });
            BOOST_TEST(std::ranges::count(good, 1) == R, R << " ranks, pieces of " << piece);
        }
}

BOOST_AUTO_TEST_CASE(gradients_of_marked_parameters_are_gathered_and_no_others) {
    std::vector<bool> const marked{true, false, false, true, true, false};
    for (int const R : {2, 3})
        for (index_t const piece : {1000, 1000000}) {
            std::vector<int> good(static_cast<std::size_t>(R));
            on_ranks(R, [&](process_group& ranks) {
                context<> const ctx(0, 1);
                parts all(sizes);
                sharded_optimizer<space<>> shares(ctx, all.parameters(), ranks, piece,
                                                  piece == 16384 ? 30000 : 1000000);
                std::uint64_t owned = 0;  // elements of marked parameters
                for (std::size_t i = 0; i < sizes.size(); ++i)
                    for (index_t j = shares.own(i).begin; j < shares.own(i).end; ++j) {
                        all.gradients()[i][static_cast<std::size_t>(j)] = term(0, i, j);
                        owned += marked[i] ? 1 : 0;
                    }
                auto const before = ranks.bytes_sent();
                shares.all_gather_gradients(marked);
                bool fine = ranks.bytes_sent() - before == 4U * owned * static_cast<std::uint64_t>(R - 1);
                for (std::size_t i = 0; i < sizes.size(); ++i)
                    for (index_t j = 0; j < sizes[i]; ++j) {
                        bool const mine = j >= shares.own(i).begin && j < shares.own(i).end;
                        fine &= all.gradients()[i][static_cast<std::size_t>(j)] ==
                                (mine || marked[i] ? term(0, i, j) : 0.0F);
                    }
                good[static_cast<std::size_t>(ranks.rank())] = fine ? 1 : 0;
            });
            BOOST_TEST(std::ranges::count(good, 1) == R, R << " ranks, pieces of " << piece);
        }
}

BOOST_AUTO_TEST_CASE(a_sum_over_all_ranges_equals_one_rank_and_names_bad_gradients) {
    std::vector<double> sums;
    for (int const R : {1, 2, 3, 5}) {
        std::mutex together;
        on_ranks(R, [&](process_group& ranks) {
            context<> const ctx(0, 1);
            parts all(sizes);
            sharded_optimizer<space<>> shares(ctx, all.parameters(), ranks);
            std::vector<double> own;
            for (std::size_t i = 0; i < sizes.size(); ++i)
                for (index_t j = shares.own(i).begin; j < shares.own(i).end; j += 16384)
                    own.push_back(1.0 / static_cast<double>(3 + j + 7 * static_cast<index_t>(i)));
            auto const squares = shares.all_gather_squares(own);
            double const sum = detail::sum_by_halves(squares.data(), 0, squares.size());
            auto const none = shares.first_nonfinite();
            auto const has = [&](std::size_t i) { return shares.own(i).begin < shares.own(i).end ? 1U : 0U; };
            // the last range of parameter 3; parameters 4 and 5 have one each
            if (has(3) != 0 && shares.own(3).end == sizes[3])
                own[own.size() - 1 - has(4) - has(5)] = std::numeric_limits<double>::quiet_NaN();
            static_cast<void>(shares.all_gather_squares(own));
            auto const bad = shares.first_nonfinite();
            std::scoped_lock const lock(together);
            sums.push_back(sum);
            BOOST_TEST(none == sizes.size());
            BOOST_TEST(bad == 3U);
        });
    }
    for (auto const each : sums) BOOST_TEST(each == sums.front());
}

BOOST_AUTO_TEST_CASE(ranks_with_different_weights_or_settings_are_reported) {
    for (bool const weight : {false, true})
        BOOST_CHECK_EXCEPTION(
            on_ranks(3,
                     [&](process_group& ranks) {
                         context<> const ctx(0, 1);
                         parts all(sizes);
                         sharded_optimizer<space<>> shares(ctx, all.parameters(), ranks);
                         shares.require_same_settings({{"one", "1"}, {"two", "2"}});
                         bool const other = ranks.rank() == 2;
                         if (weight && other) all.values()[3][40000] = 1e-30F;
                         shares.require_same_settings({{"one", "1"}, {"two", weight || !other ? "2" : "3"}});
                     }),
            error, [&](error const& e) {
                return e.code() == errc::distributed && has(e.what(), weight ? "checksum of the weights: rank 2 has '"
                                                                             : "two: rank 2 has '3', rank 0 has '2'");
            });
}
