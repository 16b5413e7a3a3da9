// SPDX-License-Identifier: Apache-2.0
// The loop of the mixture: its procedures lie in another file, so that none of them is compiled away.
#include "mixture.h"
#include "unixbench.h"

#include <string.h>

struct outcome dhrystone(double seconds) {
    double count = 0, before;
    char first[31], second[31];
    head = (struct record){&tail, RED, BLUE, 40, "SOME PROGRAM, WITH THIRTY CHARS"};
    memcpy(first, "SOME PROGRAM, THE FIRST STRING", 31);
    start_timer(seconds);
    for (before = now_s(); !over; count++) {
        int one = 2, two = 3, three = 0;
        enum colour colour = GREEN;
        global_letter = 'A';
        letters();
        memcpy(second, "SOME PROGRAM, THE OTHER STRING", 31);
        int differ = !after(first, second);
        while (one < two) {
            three = 5 * one - two;
            add_to(one, two, &three);
            one++;
        }
        into_arrays(one, three);
        over_records(&head);
        for (char letter = 'A'; letter <= other_letter; letter++)
            if (is_white(colour) && same_letter(letter, 'C')) {
                colour = next_colour(RED);
                memcpy(second, "SOME PROGRAM, THE THIRD STRING", 31);
                two = (int)count;
            }
        two *= one;
        one = two / (three ? three : 1);
        two = 7 * (two - three) - one;
        back_and_forth(&one);
        sink = one + two + differ + (int)colour + second[20];
    }
    return (struct outcome){count, now_s() - before};
}
