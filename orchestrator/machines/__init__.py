"""The machines that trials run on: what they have, who may join them, how one is given up."""
