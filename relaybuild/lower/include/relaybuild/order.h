/* The first elements of a row in order, with their places: a heap of those that come first, which is then sorted. Equal
 * elements come in the order of their places. Include "relaybuild/vector.h" first. */
#ifndef RELAYBUILD_ORDER_H_
#define RELAYBUILD_ORDER_H_

/* `key` is greater for what comes later. */
typedef struct {
  uint64_t key;
  int64_t place;
} rb_item;

RB_INLINE uint64_t rb_key_unsigned(uint64_t x) {
  return x;
}

RB_INLINE uint64_t rb_key_signed(int64_t x) {
  return (uint64_t)x ^ UINT64_C(0x8000000000000000);
}

/* Both zeros are one number, and what is no number is the greatest. */
RB_INLINE uint64_t rb_key_float(double x) {
  uint64_t bits;
  if (x != x) {
    return UINT64_MAX;
  }
  x += 0.0;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 63 ? ~bits : bits | UINT64_C(0x8000000000000000);
}

RB_INLINE int rb_is_before(rb_item a, rb_item b) {
  return a.key < b.key || (a.key == b.key && a.place < b.place);
}

/* Let items[at] sink below those of a heap, the root of which is the last, that come after it. */
RB_INLINE void rb_sink(rb_item *items, int64_t count, int64_t at) {
  const rb_item item = items[at];
  for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && rb_is_before(items[child], items[child + 1])) {
      ++child;
    }
    if (rb_is_before(items[child], item)) {
      break;
    }
    items[at] = items[child];
    at = child;
  }
  items[at] = item;
}

/* Add the next element of a row, the one at `place`, to the first `wanted` that were seen. */
RB_INLINE void rb_offer(rb_item *items, int64_t wanted, int64_t place, uint64_t key) {
  const rb_item item = {key, place};
  if (place < wanted) {
    items[place] = item;
    if (place + 1 == wanted) {
      for (int64_t at = wanted / 2; at > 0; --at) {
        rb_sink(items, wanted, at - 1);
      }
    }
  } else if (key < items[0].key) {
    items[0] = item;
    rb_sink(items, wanted, 0);
  }
}

/* Sort items; returns where they are: there, or at `room`, which has as many. */
RB_INLINE const rb_item *rb_sorted(rb_item *restrict items, rb_item *restrict room, int64_t count) {
  enum { RUN = 16 };
  for (int64_t first = 0; first < count; first += RUN) {
    const int64_t end = first + RUN < count ? first + RUN : count;
    for (int64_t next = first + 1; next < end; ++next) {
      const rb_item item = items[next];
      int64_t at = next;
      for (; at > first && rb_is_before(item, items[at - 1]); --at) {
        items[at] = items[at - 1];
      }
      items[at] = item;
    }
  }
  for (int64_t width = RUN; width < count; width *= 2) {
    for (int64_t first = 0; first < count; first += 2 * width) {
      const int64_t middle = first + width < count ? first + width : count;
      const int64_t end = first + 2 * width < count ? first + 2 * width : count;
      int64_t left = first, right = middle;
      for (int64_t at = first; at < end; ++at) {
        const int is_left = left < middle && (right == end || rb_is_before(items[left], items[right]));
        room[at] = items[is_left ? left : right];
        left += is_left;
        right += !is_left;
      }
    }
    rb_item *const other = items;
    items = room;
    room = other;
  }
  return items;
}

#endif
