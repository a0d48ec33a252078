#pragma once
// Configurations, the autoencoder, the language model and its heads.

#include "calm/model/autoencoder.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/config.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/head.hpp"
#include "calm/model/head_network.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/limits.hpp"
#include "calm/model/llama.hpp"
#include "calm/model/owned_model.hpp"
