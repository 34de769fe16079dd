//! Convolutions as a user types them, and lists of them.

use crate::convolution;
use crate::harness::{Accepted, Input, Random, Verdict, fuzz};
use crate::mutate::{Corpus, extent, one_in, pick};
use microbatch::cudnn_layers::conv::geometry;
use microbatch::shapes::{ShapeSpec, parse_shape, read_csv};

const SHAPES: [&str; 4] = [
    "n=2,c=3,h=9,w=8,k=4,r=3,s=2,pad=1,stride=2,dilation=1,groups=1,name=conv",
    "n=4,c=4,h=6,k=6,r=3,pad=1x0,stride=1x2,dilation=2x1,groups=2",
    "n=1,c=1,h=20,k=1,r=5",
    "n=256,c=64,h=27,w=27,k=192,r=5,s=5,pad=2",
];

const LIST: &str = "source,W,H,C_in,N,C_out,kernel_w,kernel_h,pad_w,pad_h,stride_w,stride_h\n\
                    DeepSpeech,70,16,1,4,8,20,5,0,0,2,2\n\n# ResNet\n\"ResNet\", 5, 6, 4, 2, 4, 3, 3, 1, 1, 1, 1\n";

/// Every key with some number.
fn shape(random: &mut Random) -> String {
    let mut parts: Vec<String> = Vec::new();
    for key in ["n", "c", "h", "w", "k", "r", "s", "pad", "stride", "dilation", "groups"] {
        let needed = ["n", "c", "h", "k", "r"].contains(&key);
        if !needed && one_in(random, 2) {
            continue;
        }
        let value = match key {
            "groups" => pick(random, &["1", "1", "2", "4"]).to_string(),
            "c" | "k" => pick(random, &["1", "2", "4", "8"]).to_string(),
            "pad" | "stride" | "dilation" if one_in(random, 3) => {
                format!("{}x{}", extent(random), extent(random))
            }
            "h" | "w" => format!("1{}", extent(random)),
            _ => extent(random),
        };
        parts.push(format!("{key}={value}"));
    }
    parts.join(",")
}

fn use_up(convolution: &ShapeSpec, input: &mut Input<'_>) -> Verdict {
    convolution::use_up(geometry(&convolution.shape, convolution.mini_batch), input)
}

#[test]
fn shapes() {
    let corpus = Corpus::new(SHAPES);
    let make = |random: &mut Random| match one_in(random, 3) {
        true => corpus.text(random),
        false => shape(random).into_bytes(),
    };
    fuzz("shapes", 3000, make, |input| {
        let convolution = parse_shape(&input.text())?;
        use_up(&convolution, input)
    });
}

#[test]
fn csv() {
    let body = LIST.split_once('\n').expect("a header").1;
    let unnamed = LIST.replace("source,", "").replace("DeepSpeech,", "").replace("\"ResNet\", ", "");
    let corpus = Corpus::new([LIST, body, &unnamed]);
    fuzz(
        "csv",
        1500,
        |random| corpus.text(random),
        |input: &mut Input<'_>| {
            let convolutions = read_csv(input.path)?;
            let verdicts = convolutions.iter().take(3).map(|convolution| use_up(convolution, input));
            let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
            Ok(verdicts
                .into_iter()
                .find(|verdict| matches!(verdict, Accepted::Used))
                .unwrap_or(Accepted::Huge))
        },
    );
}
