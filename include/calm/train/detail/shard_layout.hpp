#pragma once
// How parameters are sharded among ranks, and in which chunks shards are sent.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "calm/train/detail/block/packing.hpp"
#include "calm/train/detail/block/ranges.hpp"
#include "calm/train/detail/data_parallel.hpp"

namespace calm::detail {

// One chunk of each rank's shard, exchanged together: side by side, this rank's chunk first.
struct exchange_step {
    std::vector<data_parallel::part> chunks;  // (R) position of each
    index_t begin = 0;                        // first of its parts, this rank's first
    index_t own_end = 0;
    index_t end = 0;
    index_t size = 0;  // elements of all chunks together
};

// All that is sent for some parameters, in order.
struct exchange_plan {
    std::vector<packed_part> parts;
    std::vector<exchange_step> steps;
    std::vector<std::size_t> bucket_ends;  // one past the last step of each bucket
};

// All parameters in buckets of neighbours. The elements of a bucket, in order, are cut into one shard per rank, of
// whole ranges (detail/block/ranges.hpp). Buckets are exchanged one after another, as backward completes them.
class shard_layout {
public:
    using part = data_parallel::part;

    // For parameters of these sizes, seen from one rank; a chunk has at most `chunk` elements. A bucket ends with the
    // parameter that brings it to `bucket` elements.
    shard_layout(std::vector<index_t> const& sizes, int rank, int ranks, index_t chunk, index_t bucket) :
        rank_(static_cast<std::size_t>(rank)), ranks_(static_cast<std::size_t>(ranks)), bucket_begins_{0} {
        for (auto const size : sizes) {
            tensors_.push_back({size, elements_, buckets()});
            elements_ += size;
            if (elements_ - place_of(bucket_begins_.back()) >= bucket) bucket_begins_.push_back(tensors_.size());
        }
        if (bucket_begins_.back() < tensors_.size() || tensors_.empty()) bucket_begins_.push_back(tensors_.size());
        ranges_ = ranges_of(tensors_);
        index_t most = 0;
        for (std::size_t g = 0; g + 1 < bucket_begins_.size(); ++g) most = std::max(most, cut(g));
        chunk_ = std::min(chunk, most);
    }

    [[nodiscard]] index_t elements() const { return elements_; }                  // of all parameters
    [[nodiscard]] index_t size(std::size_t i) const { return tensors_[i].size; }  // of parameter i
    [[nodiscard]] index_t chunk() const { return chunk_; }                        // largest chunk of a shard
    // (G + 1) first parameter of each bucket, then the number of parameters.
    [[nodiscard]] std::vector<std::size_t> const& bucket_begins() const { return bucket_begins_; }
    [[nodiscard]] std::vector<parameter_range> const& ranges() const { return ranges_; }
    // Numbers of a rank's ranges, in order.
    [[nodiscard]] std::vector<std::size_t> ranges_of_rank(std::size_t r) const {
        std::vector<std::size_t> all;
        for (auto const& row : rows_)
            for (std::size_t i = row.first_range[r]; i < row.first_range[r + 1]; ++i) all.push_back(i);
        return all;
    }
    // This rank's part of parameter i.
    [[nodiscard]] part own(std::size_t i) const {
        auto const& one = tensors_[i];
        auto const& cuts = rows_[one.bucket].cuts;
        auto const within = [&](index_t at) { return std::clamp<index_t>(at - one.place, 0, one.size); };
        return {within(cuts[rank_]), within(cuts[rank_ + 1])};
    }
    // What to send for the marked parameters, bucket by bucket.
    [[nodiscard]] exchange_plan plan_of(std::vector<bool> const& marked) const {
        exchange_plan all;
        for (auto const& row : rows_) {
            for (index_t at = 0; at < row.most; at += chunk_) {
                auto& step = all.steps.emplace_back();
                step.chunks.resize(ranks_);
                step.begin = std::ssize(all.parts);
                add_chunk(all, row, at, rank_, marked);
                step.own_end = std::ssize(all.parts);
                for (std::size_t r = 0; r < ranks_; ++r)
                    if (r != rank_) add_chunk(all, row, at, r, marked);
                step.end = std::ssize(all.parts);
                if (step.size == 0) all.steps.pop_back();
            }
            all.bucket_ends.push_back(all.steps.size());
        }
        return all;
    }

private:
    struct tensor_place {
        index_t size;
        index_t place;  // of its first element among all elements
        std::size_t bucket;
    };
    struct bucket_row {
        std::vector<index_t> cuts;             // (R + 1) first element of each shard, among all elements
        std::vector<std::size_t> first_range;  // (R + 1) first range of each shard
        index_t most;                          // elements of the largest shard
    };

    [[nodiscard]] std::size_t buckets() const { return bucket_begins_.size() - 1; }
    [[nodiscard]] index_t place_of(std::size_t i) const { return i < tensors_.size() ? tensors_[i].place : elements_; }

    // Cuts bucket g into shards of about equal size: a range belongs to the rank whose equal part of the bucket it
    // begins in. Returns the elements of the largest shard.
    index_t cut(std::size_t g) {
        index_t const begin = place_of(bucket_begins_[g]), elements = place_of(bucket_begins_[g + 1]) - begin;
        auto const place = [&](std::size_t i) {
            return tensors_[static_cast<std::size_t>(ranges_[i].slot)].place + ranges_[i].begin;
        };
        std::size_t i = rows_.empty() ? 0 : rows_.back().first_range.back();
        std::size_t end = i;
        while (end < ranges_.size() && place(end) < begin + elements) ++end;
        auto& row = rows_.emplace_back();
        for (std::size_t r = 0; r <= ranks_; ++r) {
            auto const number = static_cast<index_t>(r), count = static_cast<index_t>(ranks_);
            while (i < end && (r == ranks_ || (place(i) - begin) * count < number * elements)) ++i;
            row.first_range.push_back(i);
            row.cuts.push_back(i < end ? place(i) : begin + elements);
            if (r > 0) row.most = std::max(row.most, row.cuts[r] - row.cuts[r - 1]);
        }
        return row.most;
    }
    // Adds the chunk of rank r's shard that starts at its element `at` to the last step.
    void add_chunk(exchange_plan& all, bucket_row const& row, index_t at, std::size_t r,
                   std::vector<bool> const& marked) const {
        auto& step = all.steps.back();
        step.chunks[r].begin = step.size;
        index_t const end = row.cuts[r + 1];
        index_t const begin = std::min(row.cuts[r] + at, end);
        for (auto const& range :
             std::span(ranges_).subspan(row.first_range[r], row.first_range[r + 1] - row.first_range[r])) {
            auto const slot = static_cast<std::size_t>(range.slot);
            index_t const place = tensors_[slot].place;
            index_t const from = std::max(range.begin, begin - place);
            index_t const to = std::min(range.end, std::min(begin + chunk_, end) - place);
            if (from >= to || !marked[slot]) continue;
            all.parts.push_back({range.slot, from, to, step.size});
            step.size += to - from;
        }
        step.chunks[r].end = step.size;
    }

    std::size_t rank_;
    std::size_t ranks_;
    std::vector<tensor_place> tensors_;
    std::vector<parameter_range> ranges_;
    index_t elements_ = 0;
    index_t chunk_ = 0;
    std::vector<std::size_t> bucket_begins_;
    std::vector<bucket_row> rows_;  // (G)
};

}  // namespace calm::detail
