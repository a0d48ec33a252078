#pragma once
// Configurations, the autoencoder, the language model and its head.

#include "calm/model/autoencoder.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/config.hpp"
#include "calm/model/heads/energy.hpp"
#include "calm/model/limits.hpp"
#include "calm/model/resident.hpp"
