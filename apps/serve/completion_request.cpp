#include "serve/completion_request.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "calm/base/quoted.hpp"
#include "command/suggest.hpp"
#include "serve/api_error.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

[[noreturn]] void refuse_field(std::string const& field, std::string const& sentence) {
    throw api_error{400, "\"" + field + "\": " + sentence, field, ""};
}

// The fields of a request, read by name and type.
class request_fields {
public:
    explicit request_fields(nlohmann::json const& object) : object_(object) {}

    // The value of a field, or null if it is missing or null.
    [[nodiscard]] nlohmann::json const* value(char const* name) const {
        auto const found = object_.find(name);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    void read(char const* name, bool& to) const {
        if (auto const* const found = value(name)) {
            if (!found->is_boolean()) refuse_type(name, "true or false", *found);
            to = found->get<bool>();
        }
    }
    void read(char const* name, std::string& to) const {
        if (auto const* const found = value(name)) {
            if (!found->is_string()) refuse_type(name, "a string", *found);
            to = found->get<std::string>();
        }
    }
    void read(char const* name, index_t& to, index_t least, index_t most) const {
        if (auto const* const found = value(name)) {
            auto const range = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
            if (!found->is_number_integer()) refuse_type(name, range, *found);
            bool const fits = found->is_number_unsigned()
                                  ? found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                  : found->get<std::int64_t>() >= 0;
            if (!fits || found->get<index_t>() < least) refuse_type(name, range, *found);
            to = found->get<index_t>();
        }
    }
    void read(char const* name, double& to, double least, double most) const {
        if (auto const* const found = value(name)) {
            auto const range = "a number from " + shortest(least) + " to " + shortest(most);
            if (!found->is_number()) refuse_type(name, range, *found);
            to = found->get<double>();
            if (!(to >= least && to <= most)) refuse_type(name, range, *found);
        }
    }
    [[noreturn]] static void refuse_type(std::string const& name, std::string const& expected,
                                         nlohmann::json const& found) {
        constexpr std::size_t shown = 60;
        auto text = found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        if (text.size() > shown) text = std::string(found.type_name());
        refuse_field(name, "expected " + expected + ", found " + text);
    }

private:
    nlohmann::json const& object_;
};

bool is_list_of_ids(nlohmann::json const& value) {
    return value.is_array() && !value.empty() &&
           std::all_of(value.begin(), value.end(), [](auto const& one) { return one.is_number_integer(); });
}

std::vector<token_id> ids_of(nlohmann::json const& list) {
    std::vector<token_id> ids;
    for (auto const& one : list) {
        bool const fits = one.is_number_unsigned() && one.get<std::uint64_t>() <= 0x7FFFFFFF;
        if (!fits) request_fields::refuse_type("prompt", "ids of tokens", one);
        ids.push_back(one.get<token_id>());
    }
    return ids;
}

// A string, a list of strings, a list of ids, or a list of such lists.
void read_prompts(nlohmann::json const* value, completion_request& request) {
    constexpr char const* expected = "a string, a list of strings, or lists of ids";
    if (value == nullptr)
        request.prompts.emplace_back(std::string());
    else if (value->is_string())
        request.prompts.emplace_back(value->get<std::string>());
    else if (is_list_of_ids(*value))
        request.prompts.emplace_back(ids_of(*value));
    else if (value->is_array() && !value->empty())
        for (auto const& one : *value) {
            if (one.is_string())
                request.prompts.emplace_back(one.get<std::string>());
            else if (is_list_of_ids(one))
                request.prompts.emplace_back(ids_of(one));
            else
                request_fields::refuse_type("prompt", expected, one);
        }
    else
        request_fields::refuse_type("prompt", expected, *value);
}

void read_stops(nlohmann::json const* value, completion_request& request) {
    if (value == nullptr) return;
    auto const list = value->is_array() ? *value : nlohmann::json::array({*value});
    if (list.size() > completion_request::most_stops)
        refuse_field("stop", "expected at most " + std::to_string(completion_request::most_stops) + " strings, found " +
                                 std::to_string(list.size()));
    for (auto const& one : list) {
        if (!one.is_string()) request_fields::refuse_type("stop", "a string or a list of strings", one);
        auto text = one.get<std::string>();
        if (text.empty() || text.size() > completion_request::longest_stop)
            refuse_field("stop", "expected strings of 1 to " + std::to_string(completion_request::longest_stop) +
                                     " bytes, found one of " + std::to_string(text.size()));
        request.stop.push_back(std::move(text));
    }
}

// Refuses fields of the API that change the texts in ways that are not offered. Their neutral values pass.
void refuse_what_is_not_offered(request_fields const& fields) {
    auto const neutral = [](nlohmann::json const& value, std::initializer_list<nlohmann::json> const values) {
        return std::find(values.begin(), values.end(), value) != values.end();
    };
    if (auto const* const found = fields.value("logprobs"); found != nullptr && !neutral(*found, {false}))
        refuse_field("logprobs", "not offered: a CALM generates from samples alone and knows no probabilities");
    if (fields.value("messages") != nullptr)
        refuse_field("messages", "not offered: these models continue text and do not chat; give \"prompt\"");
    if (auto const* const found = fields.value("suffix"); found != nullptr && !neutral(*found, {""}))
        refuse_field("suffix", "not offered: the model only continues text");
    for (char const* const name : {"presence_penalty", "frequency_penalty"})
        if (auto const* const found = fields.value(name); found != nullptr && !neutral(*found, {0, 0.0}))
            refuse_field(name, "not offered: leave it out or give 0");
    for (char const* const name : {"repetition_penalty", "repeat_penalty"})
        if (auto const* const found = fields.value(name); found != nullptr && !neutral(*found, {1, 1.0}))
            refuse_field(name, "not offered: leave it out or give 1");
    if (auto const* const found = fields.value("logit_bias"); found != nullptr && !found->empty())
        refuse_field("logit_bias", "not offered: leave it out");
}

}  // namespace

completion_request parse_completion_request(std::string_view body) {
    nlohmann::json object;
    try {
        object = strict_json(body);
    } catch (error const& wrong) {
        throw api_error{400, std::string("the body is not a JSON object: ") + wrong.what(), "", ""};
    }
    if (!object.is_object())
        throw api_error{400, "expected a JSON object, found " + std::string(object.type_name()), "", ""};
    request_fields const fields(object);
    completion_request request;
    fields.read("model", request.model);
    read_prompts(fields.value("prompt"), request);
    fields.read("max_tokens", request.max_tokens, 0, limits::text_tokens);
    fields.read("temperature", request.temperature, 0, 2);
    fields.read("sampler", request.sampler);
    fields.read("top_p", request.top_p, 0, 1);
    fields.read("top_k", request.top_k, 0, limits::vocabulary);
    fields.read("n", request.n, 1, completion_request::most_texts);
    index_t best_of = request.n;
    fields.read("best_of", best_of, 1, completion_request::most_texts);
    if (best_of != request.n) refuse_field("best_of", "not offered: leave it out or give the value of n");
    if (auto const* const seed = fields.value("seed")) {
        if (!seed->is_number_integer()) request_fields::refuse_type("seed", "a whole number", *seed);
        request.seed = seed->is_number_unsigned() ? seed->get<std::uint64_t>()
                                                  : static_cast<std::uint64_t>(seed->get<std::int64_t>());
    }
    read_stops(fields.value("stop"), request);
    fields.read("echo", request.echo);
    fields.read("stream", request.stream);
    fields.read("patches", request.patches);
    fields.read("ignore_eos", request.ignore_eos);
    if (auto const* const options = fields.value("stream_options")) {
        if (!options->is_object()) request_fields::refuse_type("stream_options", "an object", *options);
        request_fields(*options).read("include_usage", request.include_usage);
    }
    refuse_what_is_not_offered(fields);
    if (std::ssize(request.prompts) * request.n > completion_request::most_texts)
        refuse_field(request.n > 1 ? "n" : "prompt",
                     "expected at most " + std::to_string(completion_request::most_texts) +
                         " texts per request, found " + std::to_string(request.prompts.size()) + " prompts times " +
                         std::to_string(request.n));
    return request;
}

any_sampler sampler_of_request(completion_request const& request, bool autoregressive, index_t pool,
                               index_t exact_draws) {
    try {
        auto const T = temperature::of(request.temperature);
        if (autoregressive) {
            if (!request.sampler.empty()) refuse_field("sampler", "is for a CALM, and this model is autoregressive");
            return token_sampler::of(T, request.top_k, request.top_p);
        }
        if (request.top_p != 1)
            refuse_field("top_p", "needs the probabilities of tokens, which a CALM does not know: use temperature");
        if (request.top_k != 0)
            refuse_field("top_k", "needs the probabilities of tokens, which a CALM does not know: use temperature");
        if (request.sampler.empty()) {
            if (T.n > 0) return sampler::adaptive(T, pool);
            return T.value > 0 && T.value < 1 ? sampler::exact(T, exact_draws) : sampler::noise(T);
        }
        auto const* const name =
            std::find(std::begin(sampling_rule_names), std::end(sampling_rule_names), request.sampler);
        if (name == std::end(sampling_rule_names))
            refuse_field("sampler", "expected one of " +
                                        listed({std::begin(sampling_rule_names), std::end(sampling_rule_names)}) +
                                        ", found '" + printable_line(request.sampler) + "'");
        auto const rule = static_cast<sampling_rule>(name - std::begin(sampling_rule_names));
        return rule == sampling_rule::exact ? sampler::exact(T, exact_draws) : sampler::of(rule, T, pool);
    } catch (error const& wrong) {
        throw api_error{400, wrong.what(), "temperature", ""};
    }
}

}  // namespace calm::apps
