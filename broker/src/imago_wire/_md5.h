/* MD5 (RFC 1321), which SDKs compare bodies by: of one text, and of four at a time.
 *
 * Each step waits for the one before it, so that four texts side by side take little longer than
 * one. The vectors are those of gcc and clang, on every processor. */

#ifndef IMAGO_MD5_H
#define IMAGO_MD5_H

#include <stdint.h>
#include <string.h>

typedef uint32_t imago_four __attribute__((vector_size(16)));

static const uint32_t imago_md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
static const uint32_t imago_md5_begin[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

static inline uint32_t imago_md5_word(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16
        | (uint32_t)from[3] << 24;
}

#define IMAGO_MD5_STEP(mixed, index, word, by) \
    do { \
        a += (mixed) + words[word] + imago_md5_sines[index]; \
        a = ((a << (by)) | (a >> (32 - (by)))) + b; \
    } while (0)
#define IMAGO_MD5_TURN(mixed, index, word) \
    do { \
        int by = bys[(index) >> 4][(index) & 3]; \
        IMAGO_MD5_STEP(mixed, index, word, by); \
        kept = d, d = c, c = b, b = a, a = kept; \
    } while (0)

/* Both forms: V is a word, or four of them. */
#define IMAGO_MD5_BLOCK(name, V) \
    static inline void name(V state[4], const V words[16]) \
    { \
        static const int bys[4][4] = { \
            {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}; \
        V a = state[0], b = state[1], c = state[2], d = state[3], kept; \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(d ^ (b & (c ^ d)), i, i); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(c ^ (d & (b ^ c)), 16 + i, (5 * i + 1) & 15); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(b ^ c ^ d, 32 + i, (3 * i + 5) & 15); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(c ^ (b | ~d), 48 + i, (7 * i) & 15); \
        state[0] += a, state[1] += b, state[2] += c, state[3] += d; \
    }

IMAGO_MD5_BLOCK(imago_md5_one, uint32_t)
IMAGO_MD5_BLOCK(imago_md5_side_by_side, imago_four)

/* Take the blocks of a text from `at` on, and its end. */
static void imago_md5_rest(uint32_t state[4], const uint8_t *data, size_t size, size_t at)
{
    uint8_t last[128] = {0};
    uint32_t words[16];
    size_t left, whole;
    for (; size - at >= 64; at += 64) {
        for (int i = 0; i < 16; i++)
            words[i] = imago_md5_word(data + at + 4 * i);
        imago_md5_one(state, words);
    }
    left = size - at;
    whole = left < 56 ? 64 : 128;
    memcpy(last, data + at, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++)
        last[whole - 8 + i] = (uint8_t)(((uint64_t)size << 3) >> (8 * i));
    for (at = 0; at < whole; at += 64) {
        for (int i = 0; i < 16; i++)
            words[i] = imago_md5_word(last + at + 4 * i);
        imago_md5_one(state, words);
    }
}

/* Write the digests of `count` texts, at most four, as 32 hexadecimal digits each. */
static void imago_md5_digits(
    int count, const uint8_t *const data[4], const size_t sizes[4], uint8_t *const to[4])
{
    static const char digits[] = "0123456789ABCDEF";
    imago_four state[4], words[16];
    size_t at = 0, common = sizes[0];
    for (int i = 0; i < 4; i++)
        state[i] = (imago_four){
            imago_md5_begin[i], imago_md5_begin[i], imago_md5_begin[i], imago_md5_begin[i]};
    for (int j = 1; j < count; j++)
        common = sizes[j] < common ? sizes[j] : common;
    for (; count == 4 && common - at >= 64; at += 64) {
        for (int i = 0; i < 16; i++)
            words[i] = (imago_four){
                imago_md5_word(data[0] + at + 4 * i), imago_md5_word(data[1] + at + 4 * i),
                imago_md5_word(data[2] + at + 4 * i), imago_md5_word(data[3] + at + 4 * i)};
        imago_md5_side_by_side(state, words);
    }
    for (int j = 0; j < count; j++) {
        uint32_t own[4];
        for (int i = 0; i < 4; i++)
            own[i] = state[i][j];
        imago_md5_rest(own, data[j], sizes[j], at);
        for (int i = 0; i < 16; i++) {
            uint8_t byte = (uint8_t)(own[i >> 2] >> (8 * (i & 3)));
            to[j][2 * i] = digits[byte >> 4], to[j][2 * i + 1] = digits[byte & 15];
        }
    }
}

#endif
