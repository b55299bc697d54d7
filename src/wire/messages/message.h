// All messages of the rings: requests of the host and replies of the agent, in one file for each subject.
//
// Read this first in src/wire/messages, then message_kinds.h, stream_messages.h and replies.h; the other subjects
// follow the services that they are for.
#pragma once

#include "wire/limits.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/lane_messages.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"
#include "wire/messages/stream_messages.h"
#include "wire/messages/task_messages.h"
#include "wire/messages/tcp_messages.h"

// Lists every message, for code that handles all of them.
// clang-format off: a list
#define OFFPATH_MESSAGES(X) \
  OFFPATH_STREAM_MESSAGES(X) OFFPATH_POOL_MESSAGES(X) OFFPATH_PEER_MESSAGES(X) \
  OFFPATH_SIFT_MESSAGES(X) OFFPATH_EXCHANGE_MESSAGES(X) OFFPATH_TASK_MESSAGES(X) \
  OFFPATH_LANE_MESSAGES(X) OFFPATH_TCP_MESSAGES(X) OFFPATH_REPLY_MESSAGES(X)
// clang-format on
