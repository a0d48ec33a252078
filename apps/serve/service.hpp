#pragma once
// `serve`: completions over HTTP from a stored model, and a page that shows them and training runs.

#include "calm/io/stored_model.hpp"
#include "command/options.hpp"
#include "compiled_functions.hpp"

namespace calm::apps {

// Serves a model until a signal; `from` loads it. Returns the exit status.
int serve_model(loading const& from, serve_options const& o, stored_model const& stored);
// Serves the page of a training run alone.
int serve_run(serve_options const& o);

}  // namespace calm::apps
